//! Puts the built console into the program: a table of its files, or an empty one where nobody has
//! built it. Needs nothing but what is there.

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script its paths so")]

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Where the console is built, seen from here.
const BUILT: &str = "../../console/dist";

fn main() -> io::Result<()> {
    let home = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?);
    let out = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?);
    let built = home.join(BUILT);
    // The directory is always there, so that this is not run anew each time.
    println!("cargo::rerun-if-changed={BUILT}");
    let mut files = Vec::new();
    if built.join("index.html").is_file() {
        find(&built, &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&built).map_err(io::Error::other)?;
        let name = name.to_str().ok_or_else(|| io::Error::other("a file without a name"))?;
        let name = name.replace('\\', "/");
        table.push_str(&format!("    ({name:?}, include_bytes!({file:?})),\n"));
    }
    table.push_str("]\n");
    fs::write(out.join("console.rs"), table)
}

/// All files of a directory that are to be served.
fn find(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes()[0] == b'.');
        match path.is_dir() {
            true => find(&path, files)?,
            false if !is_hidden => files.push(path),
            false => {}
        }
    }
    Ok(())
}
