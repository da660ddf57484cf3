//! Configurations of other programs, read into thalweg's own form.
