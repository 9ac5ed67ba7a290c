//! How much is due when, counted without holding a state while the disk is read.

use punctual_model::ports::{Forecast, StoreError};
use punctual_model::{Lane, Timestamp, TopicId};

use crate::store::Store;
use crate::timeline::cells::Cell;
use crate::timeline::forecast::{Counted, Outlook};

impl Store {
    /// How much of a topic is due when. The work does not grow with what is pending.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn forecast(&self, topic: TopicId, bounds: &[Timestamp]) -> Result<Forecast, StoreError> {
        self.forecast_together(&[topic], bounds)
    }

    /// The same of several topics together: what is in memory is looked through once for all of them.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn forecast_together(
        &self,
        topics: &[TopicId],
        bounds: &[Timestamp],
    ) -> Result<Forecast, StoreError> {
        let asked: Vec<Cell> =
            bounds.iter().map(|bound| Cell::not_before(*bound).min(Cell::PREPARED)).collect();
        let mut cells = asked.clone();
        cells.extend([Cell::PREPARED, Cell::PAUSED]);
        cells.sort_unstable();
        cells.dedup();
        let (counted, sorted) = self.outlook(topics, &cells)?.count()?;
        if !sorted.is_empty() {
            self.tracks.of(Lane::Message).state.lock().tidy(sorted);
        }
        let Counted { pending, later } = counted;
        let later = |cell: Cell| {
            let place = cells.binary_search(&cell).ok();
            place.and_then(|place| later.get(place)).copied().unwrap_or(0)
        };
        let (parked, paused) = (later(Cell::PREPARED), later(Cell::PAUSED));
        Ok(Forecast {
            scheduled: pending.saturating_sub(parked),
            paused,
            prepared: parked.saturating_sub(paused),
            before: asked.iter().map(|cell| pending.saturating_sub(later(*cell))).collect(),
        })
    }

    /// What a forecast is made of. After a start the notes of the runs have to be made first.
    fn outlook(&self, topics: &[TopicId], cells: &[Cell]) -> Result<Outlook, StoreError> {
        let track = self.tracks.of(Lane::Message);
        loop {
            let outlook = track.state.lock().outlook(topics, cells.to_vec());
            let unnoted = match outlook {
                Ok(outlook) => return Ok(outlook),
                Err(unnoted) => unnoted,
            };
            let known: Vec<(TopicId, u16)> =
                self.topics().iter().map(|topic| (topic.id, topic.settings.partitions)).collect();
            for run in unnoted {
                let made = run.note(&known)?;
                track.state.lock().learn(&run, &made);
            }
        }
    }
}
