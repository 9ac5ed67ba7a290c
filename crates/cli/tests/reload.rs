//! Does a running server take a new configuration when it gets SIGHUP: what may change, and nothing
//! else? And are its log lines fit for machines, without what must not be in them?
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    reason = "the support module serves several tests, and a failed set-up may stop one"
)]

mod process_support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use process_support::PATIENCE;
use process_support::process::{Launch, Process};
use serde_json::{Value, json};
use tempfile::TempDir;

const TAKEN: &str = "the configuration was read again";

struct Setting {
    directory: TempDir,
    file: PathBuf,
}

impl Setting {
    fn new(content: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("punctual.toml");
        let setting = Self { directory, file };
        setting.write(content);
        setting
    }

    fn write(&self, content: &str) {
        std::fs::write(&self.file, content).unwrap();
    }

    fn start(&self) -> Process {
        Launch::on(self.directory.path().join("data")).config(&self.file).start()
    }
}

/// The status of a request on a connection of its own.
fn status(address: SocketAddr, request: &str, body: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!("{request}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn g49_what_may_change_changes_and_the_rest_is_named() {
    let setting = Setting::new("[limits]\nbody_bytes_max = 100\n[store]\nmemory = '64MiB'");
    let process = setting.start();
    let mut client = process.client();
    let large = json!({"body": "x".repeat(200)});
    let foreign = "GET /v1/topics HTTP/1.1\r\nhost: broker.test";
    client.post("/v1/topics/orders/messages", &json!({"body": "x"})).unwrap().expect(201);
    client.post("/v1/topics/orders/messages", &large).unwrap().expect(413);
    assert_ne!(status(process.address(), foreign, ""), 200);
    setting.write(
        "[limits]\nbody_bytes_max = 1000\n[store]\nmemory = '128MiB'\n[http]\n\
         hosts = ['broker.test']\nlisten = '127.0.0.1:1'\n[topics]\nauto_create = false\n\
         [log]\nformat = 'json'\nlevel = 'info,access=debug'",
    );
    process.signal("HUP");
    let line: Value = serde_json::from_str(&process.wait_for_line(TAKEN)).unwrap();
    let changed = line["fields"]["changed"].as_str().unwrap();
    assert_eq!(
        changed,
        "http.hosts, limits.body_bytes_max, topics.auto_create, log.format, log.level"
    );
    let warning: Value = serde_json::from_str(&process.wait_for_line("restart")).unwrap();
    // The address was given as a flag, which wins over the file, and has not changed.
    assert_eq!(warning["fields"]["keys"], "store.memory");
    assert_eq!(warning["level"], "warn");
    client.post("/v1/topics/orders/messages", &large).unwrap().expect(201);
    client.post("/v1/topics/other/messages", &json!({"body": "x"})).unwrap().expect(404);
    client.post("/v1/topics/other/groups/g/receive", &json!({})).unwrap().expect(404);
    assert_eq!(status(process.address(), foreign, ""), 200);
    // An older connection keeps its deadlines; a new one has new ones. Both are served.
    client.get("/v1/topics").unwrap().expect(200);
    process.wait_for_line("\"access\"");
    process.check_log();
}

#[test]
fn a_broken_configuration_changes_nothing() {
    let setting = Setting::new("[limits]\nbody_bytes_max = 100");
    let process = setting.start();
    let mut client = process.client();
    let large = json!({"body": "x".repeat(200)});
    for (broken, reason) in [
        ("[limits]\nbody_bytes_max = 1000\ndelay_max = 'soon'", "limits.delay_max"),
        ("[limits]\nbody_bytes_max = 1000\ndelay = '1s'", "limits.delay_max?"),
        ("[limits\nbody_bytes_max = 1000", "not TOML"),
        ("[http]\nlisten = '0.0.0.0:1'\n[auth]\nadmin_token = 'x'", "auth.admin_token"),
    ] {
        setting.write(broken);
        process.signal("HUP");
        let line = process.wait_for_line(reason);
        assert!(line.contains("everything stays as it was"), "{line}");
        client.post("/v1/topics/orders/messages", &large).unwrap().expect(413);
    }
    std::fs::remove_file(&setting.file).unwrap();
    process.signal("HUP");
    process.wait_for_line("cannot read");
    setting.write("[limits]\nbody_bytes_max = 1000");
    process.signal("HUP");
    process.wait_for_line(TAKEN);
    client.post("/v1/topics/orders/messages", &large).unwrap().expect(201);
}

#[test]
fn a_new_admin_token_holds_at_once_and_is_never_logged() {
    let setting = Setting::new("");
    let file = setting.directory.path().join("token");
    let tokens = ["admin.first-open-sesame", "admin.second-open-sesame"];
    let config = format!(
        "[auth]\nenabled = true\nadmin_token_file = '{}'\n[log]\nlevel = 'trace'",
        file.display()
    );
    setting.write(&config);
    std::fs::write(&file, tokens[0]).unwrap();
    let process = setting.start();
    let ask = |token: &str| {
        let request = "GET /v1/topics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer";
        status(process.address(), &format!("{request} {token}"), "")
    };
    assert_eq!((ask(tokens[0]), ask(tokens[1])), (200, 401));
    std::fs::write(&file, format!("{}\n", tokens[1])).unwrap();
    process.signal("HUP");
    process.wait_for_line(TAKEN);
    assert_eq!((ask(tokens[0]), ask(tokens[1])), (401, 200));
    assert!(!process.log().contains("sesame"), "G47: {}", process.log());
}

#[test]
fn lines_are_whole_and_have_nothing_of_bodies_or_credentials() {
    for format in ["text", "json"] {
        let setting = Setting::new(&format!("[log]\nlevel = 'trace'\nformat = '{format}'"));
        let process = setting.start();
        let address = process.address();
        let forged = "2000-01-01T00:00:00.000Z ERROR forged";
        for request in [
            format!("POST /v1/topics/t%0a{}/messages HTTP/1.1", forged.replace(' ', "%20")),
            "POST /v1/topics/orders/publish HTTP/1.1".to_owned(),
            "POST /nowhere/%1b[2J?secret=sesame HTTP/1.1".to_owned(),
        ] {
            let head = format!(
                "{request}\r\nhost: localhost\r\nauthorization: Bearer sesame\r\n\
                 x-request-id: mine-1\r\ncookie: sesame"
            );
            status(address, &head, "open sesame");
        }
        let access = process.wait_for_line("(none)");
        for line in process.log().lines() {
            assert!(!line.contains("sesame") && !line.contains("forged"), "{line}");
            assert!(!line.contains(char::is_control), "{line:?}");
            if format == "json" {
                let line: Value = serde_json::from_str(line).unwrap();
                let time: jiff::Timestamp = line["time"].as_str().unwrap().parse().unwrap();
                assert_eq!(format!("{time:.3}"), line["time"].as_str().unwrap());
                assert!(line["level"].is_string() && line["target"].is_string());
                assert!(line["message"].is_string() && line["fields"].is_object());
            } else {
                let time: Result<jiff::Timestamp, _> = line[..24].parse();
                assert!(time.is_ok(), "{line}");
            }
        }
        assert!(access.contains("mine-1") && access.contains("404"), "{access}");
        let line = process.wait_for_line("/v1/topics/{topic}/publish");
        assert!(line.contains("201") && line.contains("local"), "{line}");
    }
}
