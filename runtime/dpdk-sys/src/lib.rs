//! The part of DPDK 22.11 that Pannier's port calls, as C declares it; `pannier_runtime::port::dpdk` makes it safe.
//!
//! Exported functions are bound as they are. What C has as inline functions, and steps that would need DPDK's largest
//! structs, stand in `shim/`; `shim.h` says what each function of it does. `bindings.rs` is committed, so that nobody
//! needs libclang; `generate.sh` makes it anew.
//!
//! Without the feature `link` these are declarations only: the crate builds everywhere, so that it can be a member of
//! the workspace and be linted with it. With `link`, DPDK is found by pkg-config and linked.

#![allow(unsafe_code, reason = "declarations of C functions")]

#[allow(missing_docs, non_camel_case_types, reason = "generated: DPDK documents it, and names it so")]
mod bindings;

pub use bindings::*;

/// A buffer of DPDK; only C looks inside.
#[allow(non_camel_case_types, reason = "as C names it")]
#[derive(Debug)]
#[repr(C)]
pub struct rte_mbuf {
    opaque: [u8; 0],
}

/// A pool of buffers; only C looks inside.
#[allow(non_camel_case_types, reason = "as C names it")]
#[derive(Debug)]
#[repr(C)]
pub struct rte_mempool {
    opaque: [u8; 0],
}
