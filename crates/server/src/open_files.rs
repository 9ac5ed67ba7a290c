//! How many files and connections the operating system lets this process have.
//!
//! Every connection is one. The usual limit is made for other programs; up to the hard limit a
//! process may raise its own.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// What the store, the logs and pushes need beside the connections, about.
const OWN_FILES: u64 = 512;

/// Raises the limit as far as it goes, and says so when that is not enough for that many
/// connections.
pub(crate) fn raise(connections_max: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // No number means no limit.
    let may_have = match (current, maximum) {
        (None, _) => return,
        (Some(current), Some(maximum)) if current >= maximum => Some(current),
        (Some(current), maximum) => {
            match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
                Ok(()) => {
                    info!(before = current, now = ?maximum, "the limit of open files was raised");
                    maximum
                }
                Err(error) => {
                    warn!(%error, "the limit of open files could not be raised");
                    Some(current)
                }
            }
        }
    };
    let wanted = u64::try_from(connections_max).unwrap_or(u64::MAX).saturating_add(OWN_FILES);
    if let Some(limit) = may_have.filter(|limit| *limit < wanted) {
        warn!(limit, wanted, "fewer files may be open than the connections of all listeners need");
    }
}
