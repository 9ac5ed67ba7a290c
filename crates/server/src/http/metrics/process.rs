//! What an operator wants to know of any program: since when it runs, and what it takes.

use punctual_model::Timestamp;

use super::text::{Label, counter, gauge, head, line};
use crate::http::shared::Shared;
use crate::machine::{self, Room, Usage};

/// What was looked at.
pub(super) struct Process {
    started: Timestamp,
    store_bytes: u64,
    room: Option<Room>,
    usage: Usage,
}

impl Process {
    /// Blocks on the disk, but not at every call.
    pub(super) fn look(shared: &Shared) -> Self {
        Self {
            started: shared.started.0,
            store_bytes: shared.store_bytes.read(),
            room: machine::room(&shared.live().config.store.data),
            usage: Usage::read(),
        }
    }

    /// Writes all of it.
    pub(super) fn write(&self, text: &mut String) {
        let name = "punctual_build_info";
        head(text, name, "gauge", "Which program this is; always 1.");
        let version = Label::from(("version", env!("CARGO_PKG_VERSION")));
        line(text, format_args!("{name}{{{version}}} 1"));
        let help = "When the server was started, in seconds since 1970.";
        gauge(text, "punctual_start_time_seconds", help, seconds(self.started));
        let help = "Bytes that the files of the data directory take.";
        gauge(text, "punctual_store_bytes", help, self.store_bytes);
        if let Some(room) = self.room {
            let help = "Size of the disk that the data directory is on.";
            gauge(text, "punctual_disk_size_bytes", help, room.total);
            let help = "Free space on the disk that the data directory is on.";
            gauge(text, "punctual_disk_free_bytes", help, room.usable);
        }
        self.write_usage(text);
    }

    /// Under the names that programs usually have for them.
    fn write_usage(&self, text: &mut String) {
        let Usage { memory_bytes, cpu_seconds, open_files, open_files_max } = self.usage;
        if let Some(bytes) = memory_bytes {
            gauge(text, "process_resident_memory_bytes", "Memory that the process has.", bytes);
        }
        if let Some(seconds) = cpu_seconds {
            let help = "Processor time that the process has had.";
            counter(text, "process_cpu_seconds_total", help, seconds);
        }
        if let Some(files) = open_files {
            gauge(text, "process_open_fds", "Files and connections that are open.", files);
        }
        if let Some(most) = open_files_max {
            gauge(text, "process_max_fds", "How many may be.", most);
        }
    }
}

/// In seconds, to the millisecond.
fn seconds(time: Timestamp) -> String {
    let millis = time.as_millis();
    format!("{}.{:03}", millis / 1000, millis % 1000)
}
