//! Where calls stand still until a test lets them go on.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the call of the store with that name")]
pub enum Call {
    Take,
    Keep,
    Apply,
    Page,
    Get,
    Names,
    Pending,
    Forecast,
    Counts,
    Purge,
    IsEmpty,
    ChangedSince,
    PutDocument,
}

/// When a call stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moment {
    /// Before it is carried out.
    Before,
    /// After it was carried out, before it is answered.
    After,
}

#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<HashMap<(Call, Moment), Arc<Place>>>);

#[derive(Debug)]
struct Place {
    arrived: Semaphore,
    free: Semaphore,
}

impl Gates {
    pub(super) fn put(gates: &Arc<Self>, call: Call, moment: Moment) -> Gate {
        let place = Arc::new(Place { arrived: Semaphore::new(0), free: Semaphore::new(0) });
        let before = gates.0.lock().insert((call, moment), Arc::clone(&place));
        if let Some(before) = before {
            before.free.close();
        }
        Gate { gates: Arc::clone(gates), at: (call, moment), place }
    }

    pub(super) async fn pass(&self, call: Call, moment: Moment) {
        let place = self.0.lock().get(&(call, moment)).cloned();
        let Some(place) = place else { return };
        place.arrived.add_permits(1);
        // Closed: the gate is gone.
        if let Ok(permit) = place.free.acquire().await {
            permit.forget();
        }
    }
}

/// Calls stand still here while it lives.
#[derive(Debug)]
pub struct Gate {
    gates: Arc<Gates>,
    at: (Call, Moment),
    place: Arc<Place>,
}

impl Gate {
    /// Waits until one more call stands here.
    pub async fn reached(&self) {
        if let Ok(permit) = self.place.arrived.acquire().await {
            permit.forget();
        }
    }

    /// Lets one call pass, one that stands here or the next to come.
    pub fn let_one_pass(&self) {
        self.place.free.add_permits(1);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut gates = self.gates.0.lock();
        if gates.get(&self.at).is_some_and(|place| Arc::ptr_eq(place, &self.place)) {
            gates.remove(&self.at);
        }
        self.place.free.close();
    }
}
