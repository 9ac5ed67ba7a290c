//! Space set aside, so that a full disk still lets deliveries, acks and cancels through.
//!
//! A file of fixed size is allocated and never written. When the disk is full it is given up; as
//! long as it is gone no new message is accepted. As soon as it can be had again, all is well.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::disk::{self, Disk, Open};

const PATH: &str = "reserve";

/// Gives up what another process has set aside: a start on a full disk needs it.
///
/// # Errors
/// As the disk says.
pub(crate) fn give_up(disk: &dyn Disk) -> io::Result<()> {
    let file = disk.open(Path::new(PATH), Open::Create)?;
    file.set_len(0)?;
    file.sync()
}

/// The space set aside.
#[derive(Debug)]
pub(crate) struct Reserve {
    disk: Arc<dyn Disk>,
    bytes: u64,
    spent: AtomicBool,
}

impl Reserve {
    /// Sets space aside; a disk without that much room starts as full.
    ///
    /// # Errors
    /// As the disk says, but for being full.
    pub(crate) fn open(disk: Arc<dyn Disk>, bytes: u64) -> io::Result<Self> {
        let reserve = Self { disk, bytes, spent: AtomicBool::new(true) };
        reserve.restore()?;
        Ok(reserve)
    }

    /// Whether the disk is full.
    #[must_use]
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Acquire)
    }

    /// Gives the space up. True when there was some to give.
    ///
    /// # Errors
    /// As the disk says.
    pub(crate) fn spend(&self) -> io::Result<bool> {
        if self.spent.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        tracing::warn!("the disk is full: no new messages until there is room");
        let file = self.disk.open(Path::new(PATH), Open::Create)?;
        file.set_len(0)?;
        file.sync()?;
        Ok(true)
    }

    /// Tries to set the space aside again. True when the disk is not full (any more).
    ///
    /// # Errors
    /// As the disk says, but for being full.
    pub(crate) fn restore(&self) -> io::Result<bool> {
        if !self.is_spent() {
            return Ok(true);
        }
        let file = self.disk.open(Path::new(PATH), Open::Create)?;
        match file.allocate(self.bytes) {
            Ok(()) => {
                self.spent.store(false, Ordering::Release);
                Ok(true)
            }
            Err(error) if disk::is_full(&error) => {
                file.set_len(0)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
