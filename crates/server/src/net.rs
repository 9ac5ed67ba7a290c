//! What the listeners have in common: how addresses are taken and connections accepted, how many
//! there may be, and what their bytes go over.

mod accept;
mod places;
mod stream;

pub(crate) use accept::{Opened, accept, bind, open};
pub(crate) use places::{Limits, Place, Places, Seat, Standing};
pub(crate) use stream::{ReadHalf, Stream, WriteHalf};
