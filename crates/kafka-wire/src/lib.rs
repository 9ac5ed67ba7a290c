//! Kafka's wire protocol: bytes to types and back, safe on hostile input.
//!
//! Every length is checked against the bytes that remain before anything is allocated, what is
//! decompressed has a budget, and nothing here panics on bytes from outside. There is no I/O here.
