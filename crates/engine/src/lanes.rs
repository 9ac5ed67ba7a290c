//! One of something for each lane.

use punctual_model::Lane;

/// One `T` for each lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PerLane<T> {
    message: T,
    retry: T,
}

impl<T> PerLane<T> {
    /// What `make` answers for each lane.
    pub(crate) fn new(mut make: impl FnMut(Lane) -> T) -> Self {
        Self { message: make(Lane::Message), retry: make(Lane::Retry) }
    }

    /// As [`new`](Self::new), for something that can fail.
    pub(crate) fn try_new<E>(mut make: impl FnMut(Lane) -> Result<T, E>) -> Result<Self, E> {
        Ok(Self { message: make(Lane::Message)?, retry: make(Lane::Retry)? })
    }

    /// That of `lane`.
    pub(crate) const fn of(&self, lane: Lane) -> &T {
        match lane {
            Lane::Message => &self.message,
            Lane::Retry => &self.retry,
        }
    }

    /// That of `lane`, to change it.
    pub(crate) const fn of_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Message => &mut self.message,
            Lane::Retry => &mut self.retry,
        }
    }

    /// All, in the order of [`Lane::ALL`].
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Lane, &T)> {
        Lane::ALL.into_iter().zip([&self.message, &self.retry])
    }

    /// All, to change them, in the order of [`Lane::ALL`].
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Lane, &mut T)> {
        Lane::ALL.into_iter().zip([&mut self.message, &mut self.retry])
    }

    /// Something else made of each.
    pub(crate) fn map<U>(self, mut make: impl FnMut(Lane, T) -> U) -> PerLane<U> {
        let (message, retry) = (self.message, self.retry);
        PerLane { message: make(Lane::Message, message), retry: make(Lane::Retry, retry) }
    }
}
