//! Which settings of a cluster fit together, and how a refusal reads.

use super::*;
use crate::config::{Source, effective};

const MYSQL: &str = "mysql://127.0.0.1:3306/punctual";

fn file(values: &[(&str, &str)]) -> ConfigFile {
    let mut file = ConfigFile::default();
    for (name, value) in values {
        file.set(name, (*value).to_owned(), Source::Flag("test")).unwrap();
    }
    file
}

fn config(values: &[(&str, &str)]) -> Result<Config, String> {
    Config::try_from(&file(values)).map_err(|error| error.to_string())
}

/// Three nodes' worth of settings, and more.
fn clustered<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut values = vec![
        ("cluster.coordinator", "etcd"),
        ("cluster.endpoints", "127.0.0.1:2379"),
        ("timeline.kind", "mysql"),
        ("timeline.url", MYSQL),
        ("outlet.kind", "kafka"),
        ("outlet.brokers", "127.0.0.1:9092"),
    ];
    values.extend_from_slice(more);
    values
}

#[cfg(not(feature = "cluster"))]
#[test]
fn a_program_without_clusters_says_so() {
    for (name, value) in [
        ("cluster.coordinator", "etcd"),
        ("timeline.kind", "mysql"),
        ("outlet.kind", "kafka"),
        ("ingress.topics", "orders"),
    ] {
        let text = config(&[(name, value)]).unwrap_err();
        assert!(text.contains("built without clusters") && text.contains(name), "{text}");
    }
    assert!(config(&[("cluster.slots", "8")]).is_ok(), "what nobody uses harms nobody");
}

#[cfg(feature = "cluster")]
mod built {
    use super::*;

    fn refused(values: &[(&str, &str)], part: &str) {
        let text = config(values).expect_err(part);
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn pairs_that_fit_are_taken() {
        let kafka = [("outlet.kind", "kafka"), ("outlet.brokers", "a:1,B:2")];
        let alone = config(&kafka).unwrap();
        assert_eq!(alone.outlet.brokers, ["a:1", "B:2"]);
        assert_eq!(alone.timeline.kind, TimelineKind::Embedded);
        let config = config(&clustered(&[])).unwrap();
        assert_eq!(config.cluster.coordinator, CoordinatorKind::Etcd);
        assert_eq!((config.cluster.slots, config.cluster.lease), (64, Span::from_secs(9)));
        let one = &clustered(&[("cluster.coordinator", "none")]);
        assert!(super::config(one).is_ok(), "one node may use a shared store");
    }

    #[test]
    fn pairs_that_do_not_fit_are_refused() {
        let etcd = ("cluster.coordinator", "etcd");
        refused(&[etcd, ("cluster.endpoints", "a:1")], "a store that they share");
        let mysql = [("timeline.kind", "mysql"), ("timeline.url", MYSQL)];
        refused(&mysql, "outlet.kind");
        refused(&[("ingress.topics", "orders")], "outlet.kind");
        refused(&[("outlet.kind", "kafka")], "outlet.brokers");
        refused(&clustered(&[("timeline.url", "")]), "timeline.url");
        refused(&clustered(&[("timeline.kind", "cassandra")]), "timeline.endpoints");
        refused(&clustered(&[("cluster.endpoints", "")]), "cluster.endpoints");
    }

    #[test]
    fn nodes_that_others_can_reach_need_a_secret_and_a_token() {
        let auth = [("auth.enabled", "true")];
        refused(&clustered(&auth), "auth.admin_token");
        let token = ("auth.admin_token", "admin.0123456789abcdef");
        refused(&clustered(&[auth[0], token]), "cluster.secret");
        let secret = ("cluster.secret", "0123456789abcdef");
        assert!(config(&clustered(&[auth[0], token, secret])).is_ok());
        let open = [("http.listen", "0.0.0.0:7070"), ("http.insecure", "true")];
        let all = [auth[0], token, secret, open[0], open[1]];
        refused(&clustered(&all), "cluster.advertise");
        let mut reachable = clustered(&all);
        reachable.push(("cluster.advertise", "https://node-1.example:7070"));
        assert!(config(&reachable).is_ok());
    }

    #[test]
    fn a_real_kafka_is_not_in_the_way_of_ours() {
        let kafka = [("outlet.kind", "kafka"), ("outlet.brokers", "127.0.0.1:9092")];
        assert_eq!(config(&kafka).unwrap().kafka.listen, None);
        let asked = [kafka[0], kafka[1], ("kafka.listen", "127.0.0.1:9192")];
        assert!(config(&asked).unwrap().kafka.listen.is_some());
    }
}

#[test]
fn values_are_read() {
    let read = config(&[
        ("timeline.replication", "east=3, west=2"),
        ("outlet.properties", "sasl.username=me,sasl.password=a=b"),
        ("timeline.memory", "1GiB"),
    ]);
    let read = read.unwrap();
    let centres = vec![("east".to_owned(), 3), ("west".to_owned(), 2)];
    assert_eq!(read.timeline.replication, CopiesPer::Datacentre(centres));
    let properties: Vec<_> =
        read.outlet.properties.iter().map(|(name, value)| (name.as_str(), value.text())).collect();
    assert_eq!(properties, [("sasl.username", "me"), ("sasl.password", "a=b")]);
    assert_eq!(read.timeline.memory, 1 << 30);
}

#[test]
fn illegal_values_are_refused() {
    for (name, value) in [
        ("cluster.coordinator", "consul"),
        ("cluster.slots", "0"),
        ("cluster.slots", "65537"),
        ("cluster.lease", "1s"),
        ("cluster.lease", "2h"),
        ("cluster.name", "a/b"),
        ("cluster.node", "a b"),
        ("cluster.advertise", "node-1:7070"),
        ("cluster.advertise", "https://node-1/path"),
        ("cluster.advertise", "https://me:word@node-1"),
        ("cluster.secret", "short"),
        ("timeline.kind", "postgres"),
        ("timeline.url", "127.0.0.1:3306"),
        ("timeline.url", "mysql://127.0.0.1:3306"),
        ("timeline.url", "mysql://me:word@127.0.0.1/punctual"),
        ("timeline.keyspace", "Punctual"),
        ("timeline.replication", "none"),
        ("timeline.replication", "0"),
        ("timeline.finished", "forget"),
        ("outlet.kind", "pulsar"),
        ("outlet.replication", "-1"),
        ("outlet.properties", "acks"),
    ] {
        assert!(config(&[(name, value)]).is_err(), "{name} = {value}");
    }
}

#[test]
fn g47_secrets_of_a_cluster_are_shown_to_nobody() {
    const WORD: &str = "sesame-open-sesame";
    let values = [
        ("cluster.secret", WORD),
        ("timeline.password", WORD),
        ("outlet.properties", "sasl.password=sesame-open-sesame"),
    ];
    let given = file(&values);
    let config = Config::try_from(&given).unwrap();
    assert_eq!(config.cluster.secret.as_ref().unwrap().text(), WORD);
    for text in [format!("{config:?}"), format!("{given:?}"), effective(&given)] {
        assert!(!text.contains("sesame"), "{text}");
    }
    let given = file(&[("timeline.url", "mysql://me:sesame@127.0.0.1/punctual")]);
    let refused = Config::try_from(&given).unwrap_err().to_string();
    for text in [refused, format!("{given:?}"), effective(&given)] {
        assert!(!text.contains("sesame"), "{text}");
    }
}
