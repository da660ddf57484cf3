//! Open windows in a checkpoint: those of a span or a number of messages, or sessions.

use serde_json::Value;

use super::kept_sessions::KeptSessions;
use super::window::Window;
use crate::open::{Acks, Keeps, KeptOpen};

/// Keeps open windows in the journal.
pub(super) enum KeptWindows {
    Windows(KeptOpen<Window>),
    Sessions(KeptSessions),
}

impl Keeps for KeptWindows {
    fn has_failed(&self) -> bool {
        match self {
            Self::Windows(kept) => kept.has_failed(),
            Self::Sessions(kept) => kept.has_failed(),
        }
    }

    fn has_news(&self) -> bool {
        match self {
            Self::Windows(kept) => kept.has_news(),
            Self::Sessions(kept) => kept.has_news(),
        }
    }

    fn state(&mut self) -> Option<Value> {
        match self {
            Self::Windows(kept) => kept.state(),
            Self::Sessions(kept) => kept.state(),
        }
    }
}

impl Acks<KeptWindows> {
    /// Returns the part that keeps windows, if a checkpoint has them and they are no sessions.
    pub(super) fn windows(&mut self) -> Option<&mut KeptOpen<Window>> {
        match self {
            Self::Checkpoint(kept) => match &mut **kept {
                KeptWindows::Windows(kept) => Some(kept),
                KeptWindows::Sessions(_) => None,
            },
            Self::Results | Self::AtOnce => None,
        }
    }

    /// Returns the part that keeps sessions, if a checkpoint has them.
    pub(super) fn sessions(&mut self) -> Option<&mut KeptSessions> {
        match self {
            Self::Checkpoint(kept) => match &mut **kept {
                KeptWindows::Windows(_) => None,
                KeptWindows::Sessions(kept) => Some(kept),
            },
            Self::Results | Self::AtOnce => None,
        }
    }
}
