//! Sources that do not end by themselves.

/// Why a source reads until the run is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endless {
    /// This option says so.
    By(&'static str),
    /// This option, which would end it, is not given.
    Without(&'static str),
}

impl Endless {
    /// That of a source which this option ends, unless it is given.
    pub fn unless(option: &'static str, is_given: bool) -> Option<Self> {
        (!is_given).then_some(Self::Without(option))
    }

    /// That of a source which this option keeps alive, if it is given.
    pub fn by(option: &'static str, is_given: bool) -> Option<Self> {
        is_given.then_some(Self::By(option))
    }
}
