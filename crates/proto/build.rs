//! Makes Rust of the contract, without a compiler of its own on the machine.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let contract = protox::compile(["punctual/v1/punctual.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?);
    std::fs::write(out.join("punctual.v1.bin"), contract.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(contract)?;
    Ok(())
}
