//! `encoding=text`: responses as Kubo's command line prints them.

mod difference;
mod forms;
mod listing;
mod node;
mod reports;
mod structures;
mod writing;

pub(super) use self::forms::{Form, of as form_of};
pub(super) use self::writing::{Done, text};
