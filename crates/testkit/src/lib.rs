//! What the tests of every crate share: a clock moved by hand, a disk that forgets, the seams in
//! their simplest form, the contracts of the seams as code, and the real services behind them.
//!
//! Only tests depend on this crate; nothing in it reaches a released binary.

pub mod clock;
pub mod forgetful;
pub mod moody;
pub mod conformance;
pub mod reference;
pub mod services;

pub use clock::ManualClock;
pub use reference::Reference;
