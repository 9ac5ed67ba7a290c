//! Which apps sit on a connection: each takes one of its seats there from its first request on, and
//! gives it back when the connection ends.

use std::sync::Arc;

use parking_lot::Mutex;
use punctual_api::{Code, Problem};

use crate::access::gate::App;

/// Most apps on one connection; more are a mistake, or somebody who wants to fill the memory.
const SEATS_MAX: usize = 64;

/// A connection, as far as apps are concerned. The listener keeps it as long as the connection
/// lasts, and hands it on with every request.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    seated: Mutex<Vec<Arc<App>>>,
}

impl Connection {
    /// Seats the app, unless it sits here.
    pub(super) fn seat(&self, app: &Arc<App>) -> Result<(), Problem> {
        let mut seated = self.seated.lock();
        if seated.iter().any(|other| Arc::ptr_eq(other, app)) {
            return Ok(());
        }
        if seated.len() >= SEATS_MAX {
            let detail = format!("a connection serves at most {SEATS_MAX} apps");
            return Err(Problem::new(Code::QuotaExceeded, detail).after(1));
        }
        app.sit_down()?;
        seated.push(Arc::clone(app));
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for app in self.seated.get_mut().drain(..) {
            app.stand_up();
        }
    }
}
