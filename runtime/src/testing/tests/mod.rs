//! Tests of the strategies.
