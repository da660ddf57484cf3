//! The types of the server that are written and read in their binary form. Values of other types pass as
//! text, which the server converts.

/// A type of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Bytea,
    Date,
    Time,
    /// A point in time without a time zone.
    Timestamp,
    /// A point in time.
    TimestampTz,
    Uuid,
    Json,
    Jsonb,
}

impl Kind {
    /// Returns the type with this object identifier. They are fixed in the server's catalogue (`pg_type.dat`
    /// of its sources).
    pub(crate) fn of_oid(oid: u32) -> Option<Self> {
        Some(match oid {
            16 => Self::Bool,
            17 => Self::Bytea,
            20 => Self::Int8,
            21 => Self::Int2,
            23 => Self::Int4,
            // name, text, bpchar, varchar
            19 | 25 | 1042 | 1043 => Self::Text,
            114 => Self::Json,
            700 => Self::Float4,
            701 => Self::Float8,
            1082 => Self::Date,
            1083 => Self::Time,
            1114 => Self::Timestamp,
            1184 => Self::TimestampTz,
            1700 => Self::Numeric,
            2950 => Self::Uuid,
            3802 => Self::Jsonb,
            _ => return None,
        })
    }

    /// True for the types of whole numbers.
    pub(crate) fn is_integer(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8)
    }

    /// True for the types of points in time.
    pub(crate) fn is_time_point(self) -> bool {
        matches!(self, Self::Timestamp | Self::TimestampTz)
    }
}

/// The days between the epoch of the server, 2000-01-01, and that of Arrow, 1970-01-01.
pub(crate) const EPOCH_DAYS: i32 = 10_957;

/// The same in microseconds.
pub(crate) const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;
