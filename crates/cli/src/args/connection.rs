//! Arguments that every client command takes: which server, as whom, and in which form it answers.

use std::path::PathBuf;

use clap::Args;

const HEADING: &str = "Connection and output";

/// What every client command takes.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// Address of the server
    #[arg(long, global = true, env = "PUNCTUAL_SERVER", default_value = "http://127.0.0.1:7070",
          value_name = "URL", help_heading = HEADING)]
    pub(crate) server: String,
    /// Key and secret of an app, or the admin token; better in the environment, since others can
    /// read the arguments of a process
    #[arg(long, global = true, env = "PUNCTUAL_TOKEN", hide_env_values = true,
          value_name = "KEY.SECRET", help_heading = HEADING)]
    pub(crate) token: Option<Secret>,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
    /// Print one JSON object per line, with the field names of the HTTP API
    #[arg(long, global = true, help_heading = HEADING)]
    pub(crate) json: bool,
    /// Print only ids or names, one per line
    #[arg(long, short, global = true, conflicts_with = "json", help_heading = HEADING)]
    pub(crate) quiet: bool,
}

/// How a server is spoken to over TLS.
#[derive(Debug, Args)]
pub(crate) struct TlsOptions {
    /// Certificates to trust instead of those of the system (PEM)
    #[arg(long, global = true, env = "PUNCTUAL_CA_FILE", value_name = "FILE",
          help_heading = HEADING)]
    pub(crate) ca_file: Option<PathBuf>,
    /// Certificate to show to the server (PEM)
    #[arg(long, global = true, env = "PUNCTUAL_CERT", value_name = "FILE", requires = "cert_key",
          help_heading = HEADING)]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of --cert (PEM)
    #[arg(long, global = true, env = "PUNCTUAL_CERT_KEY", value_name = "FILE", requires = "cert",
          help_heading = HEADING)]
    pub(crate) cert_key: Option<PathBuf>,
}

/// A text that no error and no debug output shows.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}
