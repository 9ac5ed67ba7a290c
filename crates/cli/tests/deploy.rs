//! Do the dashboard, the alerts and the page about metrics fit what the program really tells?
//!
//! `scripts/deploy-check.sh` asks Prometheus' own tool, which it fetches, and fails where it cannot.
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod process_support;

use std::path::Path;
use std::process::Command;

use process_support::process::Launch;
use tempfile::TempDir;

/// What hangs is ended after so many seconds, and fails.
const LIMIT_SECONDS: &str = "300";
const TOKEN: &str = "admin.only-for-this-test-0123456789";

#[test]
fn what_is_deployed_beside_the_server_fits_it() {
    let data = TempDir::new().expect("a directory");
    let server = Launch::on(&data)
        .with("PUNCTUAL_AUTH__ENABLED", "true")
        .with("PUNCTUAL_AUTH__ADMIN_TOKEN", TOKEN)
        .start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/deploy-check.sh");
    let url = format!("http://{}", server.address());
    let mut command = Command::new("timeout");
    command.arg(LIMIT_SECONDS).arg(script).arg(url).env("PUNCTUAL_TOKEN", TOKEN);
    let output = command.output().expect("bash and timeout are there");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{printed}\n{errors}", output.status);
    assert!(printed.ends_with("deploy: in order\n"), "{printed}");
    server.check_log();
}
