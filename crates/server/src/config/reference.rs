//! What the program tells about its configuration: the page about all keys, made from the table,
//! and the values in force.

use crate::config::file::{ConfigFile, Written};
use crate::config::keys::{KEYS, Key, Kind};

const HEAD: &str = "\
# Configuration

<!-- Written by `punctual config reference`; a test holds it to the program. -->

One TOML file (`punctual serve --config FILE`), the environment, and for the common keys flags. Flags
win over the environment, and that over the file. In the file a key stands in the table of its
section:

```toml
[http]
listen = \"127.0.0.1:7070\"
hosts = [\"broker.internal\"]
```

As a variable its name is `PUNCTUAL_`, section, two underscores, key, all in capitals. A name that no
key has is an error that names the nearest one, in the file and in the environment alike.

- **Durations** are written `250ms`, `30s`, `1h30m`, `40d`, `PT30S`, or as a number of milliseconds.
- **Bytes** are written `512KiB`, `4MiB`, `1GiB`, or as a plain number.
- **Lists** are lists of texts in the file, and one text separated by commas in a variable.
- **Secrets** have no flag, because others on the machine see those. Instead of the secret a file
  that holds it can be named: the key with `_file` behind. `punctual config print` hides them.
- **Reload**: keys marked so take effect in a running server when it gets SIGHUP. Others need a
  restart. No key can be changed over the network.

`punctual config print` shows what a server would run with and where each value comes from;
`punctual config check FILE` says whether a file is good.
";

/// The page, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    let mut section = "";
    for key in KEYS {
        if key.section() != section {
            section = key.section();
            let heading = format!(
                "\n## {section}\n\n| key | value | default | reload | meaning |\n|---|---|---|---|---|\n"
            );
            page.push_str(&heading);
        }
        page.push_str(&line(key));
    }
    page
}

fn line(key: &Key) -> String {
    let default = match key.default {
        "" => "none".to_owned(),
        text => format!("`{text}`"),
    };
    let kind = match key.kind {
        Kind::Choice(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
        kind => kind.to_string(),
    };
    let reload = if key.reload { "yes" } else { "no" };
    let (name, variable, about) = (key.name, key.variable(), key.about);
    format!("| `{name}`<br>`{variable}` | {kind} | {default} | {reload} | {about} |\n")
}

/// A file that would give the same configuration, with who wrote what; secrets are hidden.
#[must_use]
pub fn effective(file: &ConfigFile) -> String {
    let mut text = String::new();
    let mut section = "";
    for Written { key, value, source } in file.values() {
        if key.section() != section {
            section = key.section();
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}[{section}]\n"));
        }
        let name = key.name.rsplit('.').next().unwrap_or_default();
        // A name from the environment or of a file may have any character but a line's end here.
        let source = source.to_string().replace(char::is_control, "?");
        // A secret that is set is not what stands here, so the line must not be taken for it.
        let hidden = if key.secret() && key.default != value { "# " } else { "" };
        let value = toml::Value::String(value.to_owned());
        text.push_str(&format!("{hidden}{name} = {value} # {source}\n"));
    }
    text
}
