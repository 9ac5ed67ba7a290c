//! What may be written, what is refused, and how the refusal reads.

use super::*;

fn written(toml: &str) -> Result<Config, ConfigError> {
    let mut file = ConfigFile::default();
    file.read_toml(toml, "punctual.toml".into())?;
    Config::try_from(file)
}

fn refused(toml: &str) -> String {
    written(toml).expect_err(toml).to_string()
}

#[test]
fn the_defaults_are_valid_and_loopback() {
    let config = written("").unwrap();
    assert!(config.http.listen.ip().is_loopback(), "G42");
    assert_eq!(config.store.durability, Durability::Fsync);
    assert_eq!(config.limits.body_bytes_max, punctual_model::limits::BODY_BYTES_MAX);
    assert_eq!(config.limits.delay_max, punctual_model::limits::DELAY_MAX);
    assert!(config.tls.is_none() && !config.auth.enabled && config.otel.endpoint.is_none());
}

#[test]
fn later_sources_win() {
    let mut file = ConfigFile::default();
    file.read_toml("[http]\nlisten = '127.0.0.1:1'\nconnections_max = 7", "f".into()).unwrap();
    let variable = ("PUNCTUAL_HTTP__LISTEN".to_owned(), "127.0.0.1:2".to_owned());
    let other = ("PUNCTUAL_SERVER".to_owned(), "x".to_owned());
    file.read_environment([variable, other]).unwrap();
    let config = Config::try_from(&file).unwrap();
    assert_eq!((config.http.listen.port(), config.http.connections_max), (2, 7));
    file.set("http.listen", "[::1]:3".to_owned(), Source::Flag("--http")).unwrap();
    assert_eq!(Config::try_from(file).unwrap().http.listen.port(), 3);
}

#[test]
fn an_unknown_key_names_the_nearest() {
    let text = refused("[http]\nlisten_on = 'x'");
    assert_eq!(text, "punctual.toml:2: there is no key http.listen_on; did you mean http.listen?");
    let text = refused("[topic]\nauto_create = true");
    assert!(text.contains("did you mean topics.auto_create?"), "{text}");
    let text = refused("\n\n[http]\n# data\ndata = '/x'");
    assert!(text.starts_with("punctual.toml:5") && text.contains("store.data"), "{text}");
    let text = refused("[htpp]");
    assert!(text.contains("there is no key htpp."), "an empty section counts too: {text}");
}

#[test]
fn an_unknown_variable_names_the_nearest() {
    for variable in ["PUNCTUAL_STORE__DURABILTY", "PUNCTUAL_STORE_DURABILITY"] {
        let mut file = ConfigFile::default();
        let text = file.read_environment([(variable.to_owned(), "os".to_owned())]).unwrap_err();
        let text = text.to_string();
        assert!(text.contains(variable) && text.contains("PUNCTUAL_STORE__D"), "{text}");
    }
    let mut file = ConfigFile::default();
    let others = [
        "PUNCTUAL_TOKEN",
        "PUNCTUAL_SERVER",
        "PUNCTUAL_PUSH_SECRET",
        "HTTP__LISTEN",
        "PUNCTUALITY_HTTP__X",
    ];
    file.read_environment(others.map(|name| (name.to_owned(), "x".to_owned()))).unwrap();
}

#[test]
fn g42_an_address_that_others_can_reach_is_refused() {
    for address in ["0.0.0.0:7070", "[::]:7070", "192.168.1.1:7070", "[::ffff:10.0.0.1]:1"] {
        let listen = format!("[http]\nlisten = '{address}'\n");
        let text = refused(&listen);
        assert!(text.contains("authentication"), "{text}");
        let text = refused(&format!("{listen}[auth]\nenabled = true"));
        assert!(text.contains("in the clear"), "{text}");
        written(&format!("{listen}insecure = true\n[auth]\nenabled = true")).unwrap();
        let tls = "[tls]\ncert_file = 'cert.pem'\nkey_file = 'key.pem'";
        written(&format!("{listen}[auth]\nenabled = true\n{tls}")).unwrap();
        let text = refused(&format!("{listen}insecure = true\n{tls}"));
        assert!(text.contains("authentication"), "neither replaces it: {text}");
    }
    written("[http]\nlisten = '[::1]:1'").unwrap();
}

#[test]
fn a_certificate_and_its_key_belong_together() {
    for toml in ["cert_file = 'c'", "key_file = 'k'", "client_ca_file = 'a'"] {
        let text = refused(&format!("[tls]\n{toml}"));
        assert!(text.contains("it needs tls."), "{text}");
    }
    let tls = "[tls]\ncert_file = 'c'\nkey_file = 'k'\nclient_ca_file = 'a'\n";
    let config = written(tls).unwrap().tls.unwrap();
    assert_eq!(config.client_auth, ClientAuth::Required);
    let config = written(&format!("{tls}client_auth = 'optional'")).unwrap().tls.unwrap();
    assert_eq!(config.client_auth, ClientAuth::Optional);
}

#[test]
fn illegal_values_are_refused() {
    for toml in [
        "[http]\nlisten = 'localhost'",
        "[http]\nconnections_max = 0",
        "[http]\nheader_timeout = 0",
        "[http]\nheader_timeout = -5",
        "[http]\nheader_timeout = 1.5",
        "[http]\nheader_timeout = '1w'",
        "[http]\nheader_timeout = '99999999999999999999'",
        "[http]\ncors_origins = ['*']",
        "[http]\ncors_origins = ['https://console.example/']",
        "[http]\ncors_origins = ['console.example']",
        "[store]\ndurability = 'sometimes'",
        "[store]\nmemory = '1 KB'",
        "[limits]\nbody_bytes_max = '1GiB'",
        "[limits]\ndelay_max = '4000d'",
        "[topics]\nauto_create = 'yes'",
        "[push]\nallow = 'hooks.lan'",
        "[tls]\ncert_file = 'c'\nkey_file = 'k'\nclient_auth = 'maybe'",
        "[auth]\nadmin_token = 'short'",
        "[auth]\nadmin_token = 'with spaces in it'",
        "[log]\nformat = 'xml'",
        "[log]\nlevel = 'loud'",
        "[log]\nlevel = 'info,punctual_server=loud'",
        "[otel]\nsample = 1.5",
        "[otel]\nsample = 'nan'",
        "[otel]\nendpoint = 'localhost:4317'",
        "[otel]\nendpoint = 'http://me:pass@localhost:4317'",
        "http = 5",
        "not toml",
    ] {
        assert!(written(toml).is_err(), "{toml}");
    }
}

#[test]
fn a_value_of_another_type_says_what_is_taken_and_where() {
    let text = refused("[http]\n\nlisten = ['a', 'b']");
    assert!(text.contains("punctual.toml:3") && text.contains("address and port"), "{text}");
    let text = refused("[http]\nconnections_max = 1979-05-27");
    assert!(text.contains("whole number") && text.contains("not a date"), "{text}");
    let text = refused("[http.header_timeout]\nx = 1");
    assert!(text.contains("duration") && text.contains("not a table"), "{text}");
    let text = refused("[http]\nhosts = [1]");
    assert!(text.contains("list of texts"), "{text}");
    let text = refused("[http]\nlisten = 1\nlisten = 2");
    assert!(text.contains("punctual.toml:3"), "{text}");
    assert_eq!(written("[http]\nhosts = ['a', 'B']").unwrap().http.hosts, ["a", "b"]);
}

#[test]
fn g47_secrets_are_shown_to_nobody() {
    const TOKEN: &str = "admin.sesame-open-sesame";
    let toml = format!("[auth]\nadmin_token = '{TOKEN}'\n[push]\ncheck_secret = '{TOKEN}'");
    let mut file = ConfigFile::default();
    file.read_toml(&toml, "f".into()).unwrap();
    let config = Config::try_from(&file).unwrap();
    assert!(config.auth.admin_token.is_some() && config.push.check_secret.is_some());
    let dump: String = file.values().map(|written| written.value.to_owned()).collect();
    for text in [format!("{config:?}"), format!("{file:?}"), dump] {
        assert!(!text.contains(TOKEN), "{text}");
    }
    for toml in [
        format!("[auth]\nadmin_token = '{TOKEN} {TOKEN}'"),
        format!("[auth]\nadmin_token = ['{TOKEN}']"),
        format!("[auth]\nadmin_token = '{TOKEN}"),
        format!("[push]\ncheck_secret = 'whsec_{TOKEN}?'"),
    ] {
        let text = refused(&toml);
        assert!(!text.contains("sesame"), "{text}");
    }
}

#[test]
fn a_secret_may_be_in_a_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let toml = format!("[auth]\nadmin_token_file = '{}'", path.display());
    assert!(refused(&toml).contains("cannot be read"));
    std::fs::write(&path, "\n").unwrap();
    assert!(refused(&toml).contains("empty"));
    std::fs::write(&path, "x".repeat(5000)).unwrap();
    assert!(refused(&toml).contains("more than"));
    std::fs::write(&path, "short\n").unwrap();
    assert!(refused(&toml).contains("characters") && !refused(&toml).contains("\"short"));
    std::fs::write(&path, "admin.0123456789abcdef\n").unwrap();
    let same = "[auth]\nadmin_token = 'admin.0123456789abcdef'";
    let token = |toml| written(toml).unwrap().auth.admin_token.unwrap();
    assert_eq!(token(&toml), token(same));
    let both = format!("{toml}\nadmin_token = 'admin.0123456789abcdef'");
    assert!(refused(&both).contains("only one"));
}

#[test]
fn levels_may_differ_by_part() {
    let config = written("[log]\nlevel = 'warn,punctual_server::push=trace'").unwrap();
    let level = config.log.level;
    assert_eq!(level.general.to_string(), "warn");
    assert_eq!(level.parts.len(), 1);
    assert_eq!(level.parts[0].0, "punctual_server::push");
}

#[test]
fn a_running_server_changes_only_what_is_listed() {
    let mut running = ConfigFile::default();
    running.read_toml("[http]\nlisten = '127.0.0.1:1'\nhosts = 'a'", "f".into()).unwrap();
    let mut fresh = ConfigFile::default();
    fresh.read_toml("[http]\nlisten = '127.0.0.1:2'\nhosts = 'b'", "f".into()).unwrap();
    let changed: Vec<_> = fresh.changed(&running).map(|key| (key.name, key.reload)).collect();
    assert_eq!(changed, [("http.listen", false), ("http.hosts", true)]);
    fresh.keep_fixed(&running);
    let config = Config::try_from(fresh).unwrap();
    assert_eq!((config.http.listen.port(), config.http.hosts), (1, vec!["b".to_owned()]));
}
