//! Single plugins.

use super::*;

