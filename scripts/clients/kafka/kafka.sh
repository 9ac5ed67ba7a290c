#!/usr/bin/env bash
# Calls a running broker with Kafka clients that other people wrote, as they are.
#
#   scripts/clients/kafka/kafka.sh --install              fetches and builds the clients
#   scripts/clients/kafka/kafka.sh NAME HOST:PORT         one of them against a broker
#   scripts/clients/kafka/kafka.sh --jars                 where Apache Kafka's jars are
#
# The names: kcat, confluent, kafka-python, kafkajs, rdkafka, java, java-3, java-tools, franz-go, sarama;
# and kill, a producer for a broker that is being killed, which goes on until its input ends; and write,
# which fills topics with batches of every shape.
# A client whose language is not on the machine is not there: then the exit code is 3. With PLAIN=1
# nothing is asked that only a broker with delays can do, so that the original can be asked as well.
set -euo pipefail
cd "$(dirname "$0")"
here="$PWD"
root="$(cd ../../.. && pwd)"
target="${CARGO_TARGET_DIR:-$root/target}"
case "$target" in /*) ;; *) target="$root/$target" ;; esac
tools="$target/clients/kafka-1"
kafka_version="${KAFKA_VERSION:-4.3.1}"
old_version=3.9.2

# Programs only: some functions below have the name of one.
have() { type -P "$1" >/dev/null; }

# These are called where a failure is looked at, so a failed step must not be followed by another.

# Runs the rest with a lock of its own, so that tests may come at the same time.
locked() {
    mkdir -p "$tools"
    exec 9>"$tools/$1.lock"
    flock 9
}

# Whether that was made of exactly these files.
fresh() {
    local mark="$tools/$1.sum"
    shift
    [ -f "$mark" ] && [ "$(cat "$mark")" = "$(cat "$@" | sha256sum)" ]
}

made() {
    local mark="$tools/$1.sum"
    shift
    cat "$@" | sha256sum >"$mark"
}

kcat() {
    have kcat && return 0
    [ "$(id -u)" -eq 0 ] && have apt-get || return 3
    apt-get install -y -qq --no-install-recommends kcat >&2
}

python() {
    have python3 || return 3
    (
        locked python
        fresh python requirements.txt && exit 0
        rm -rf "$tools/python" &&
            python3 -m venv "$tools/python" &&
            "$tools/python/bin/python" -m pip install --quiet --disable-pip-version-check \
                --no-compile --requirement requirements.txt >&2 &&
            made python requirements.txt
    )
}

node() {
    have npm || return 3
    (
        locked node
        fresh node node/package-lock.json && exit 0
        rm -rf "$tools/node" &&
            mkdir -p "$tools/node" &&
            cp node/package.json node/package-lock.json "$tools/node/" &&
            (cd "$tools/node" && npm ci --silent --no-audit --no-fund >&2) &&
            made node node/package-lock.json
    )
}

# One set of jars: the directory, then what to take, as group:artifact:version.
jars() {
    local into="$1" scratch one part
    shift
    scratch="$(mktemp -d)"
    {
        echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        echo '<groupId>punctual</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging><dependencies>'
        for one in "$@"; do
            IFS=: read -ra part <<<"$one"
            echo "<dependency><groupId>${part[0]}</groupId><artifactId>${part[1]}</artifactId><version>${part[2]}</version></dependency>"
        done
        echo '</dependencies></project>'
    } >"$scratch/pom.xml"
    rm -rf "$into.new" &&
        mvn -q -B -f "$scratch/pom.xml" dependency:copy-dependencies -DoutputDirectory="$into.new" >&2 &&
        mv "$into.new" "$into"
    local code=$?
    rm -rf "$scratch"
    return "$code"
}

# Apache Kafka with its tools, its client of an older line, and our program compiled against both.
java() {
    have mvn && have javac || return 3
    (
        locked java
        new="$tools/java-$kafka_version" old="$tools/java-$old_version" logging=org.apache.logging.log4j
        if [ ! -d "$new" ]; then
            jars "$new" "org.apache.kafka:kafka_2.13:$kafka_version" "org.apache.kafka:kafka-tools:$kafka_version" \
                "$logging:log4j-slf4j-impl:2.25.2" "$logging:log4j-core:2.25.2" || exit 1
        fi
        if [ ! -d "$old" ]; then
            jars "$old" "org.apache.kafka:kafka-clients:$old_version" \
                "$logging:log4j-slf4j-impl:2.25.2" "$logging:log4j-core:2.25.2" || exit 1
        fi
        fresh java java/KafkaClient.java && [ -d "$new.classes" ] && exit 0
        for each in "$new" "$old"; do
            mkdir -p "$each.classes" &&
                javac -nowarn -cp "$each/*" -d "$each.classes" java/KafkaClient.java >&2 || exit 1
        done
        made java java/KafkaClient.java
    )
}

# librdkafka is built for its own suite of tests; this crate is linked with that.
rust() {
    have cargo && have make || return 3
    ./librdkafka-suite.sh --install || return
    (
        locked rust
        fresh rust rust/Cargo.lock rust/src/main.rs && exit 0
        PKG_CONFIG_PATH="$tools/librdkafka/prefix/lib/pkgconfig" CARGO_TARGET_DIR="$tools/rust" \
            cargo build --quiet --locked --manifest-path rust/Cargo.toml >&2 &&
            made rust rust/Cargo.lock rust/src/main.rs
    )
}

go() {
    have go || return 3
    (
        locked go
        fresh go go/go.sum go/*/main.go && exit 0
        mkdir -p "$tools/go" &&
            (cd go && command go build -o "$tools/go/" ./franz ./saramac) >&2 &&
            made go go/go.sum go/*/main.go
    )
}

need() {
    "$1" && return 0
    local code=$?
    [ "$code" -eq 3 ] && echo "$2 is not on this machine" >&2
    exit "$code"
}

what="${1:?say which client, or --install}"
case "$what" in
--install)
    for language in kcat python node java rust go; do
        "$language" || { code=$?; [ "$code" -eq 3 ] || exit "$code"; }
    done
    ;;
--jars)
    need java "Java 17 with Maven" && echo "$tools/java-$kafka_version"
    ;;
kcat)
    need kcat "kcat"
    exec ./kcat-client.sh "$2"
    ;;
confluent | kafka-python | kill | write)
    need python "Python 3"
    PYTHONDONTWRITEBYTECODE=1 exec "$tools/python/bin/python" "${what//-/_}_client.py" "$2"
    ;;
kafkajs)
    need node "Node.js with npm"
    # Node looks for packages beside the file.
    cp node/client.mjs "$tools/node/client.$$.mjs"
    trap 'rm -f "$tools/node/client.$$.mjs"' EXIT
    command node "$tools/node/client.$$.mjs" "$2"
    ;;
java | java-3)
    need java "Java 17 with Maven"
    if [ "$what" = java ]; then version="$kafka_version"; else version="$old_version"; fi
    exec java -Xmx256m "-Dlog4j2.configurationFile=$here/java/log4j2.xml" \
        -cp "$tools/java-$version.classes:$tools/java-$version/*" KafkaClient "$2"
    ;;
confluent-share)
    need python "Python 3"
    PYTHONDONTWRITEBYTECODE=1 exec "$tools/python/bin/python" confluent_share_client.py "$2" "$3"
    ;;
java-share)
    need java "Java 17 with Maven"
    exec java -Xmx256m "-Dlog4j2.configurationFile=$here/java/log4j2.xml" \
        -cp "$tools/java-$kafka_version/*" java/ShareClient.java "$2" "$3"
    ;;
java-tools)
    need java "Java 17 with Maven"
    exec ./java-tools.sh "$tools/java-$kafka_version" "$2"
    ;;
rdkafka)
    need rust "cargo or make"
    LD_LIBRARY_PATH="$tools/librdkafka/prefix/lib" exec "$tools/rust/debug/rdkafka-check" "$2"
    ;;
franz-go)
    need go "Go"
    exec "$tools/go/franz" "$2"
    ;;
sarama)
    need go "Go"
    exec "$tools/go/saramac" "$2"
    ;;
*)
    echo "there is no client $what" >&2
    exit 2
    ;;
esac
