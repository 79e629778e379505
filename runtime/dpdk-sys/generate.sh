#!/usr/bin/env bash
# Makes src/bindings.rs anew. Needs libdpdk-dev and clang of Debian 12, and `cargo install bindgen-cli --locked`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

functions='rte_eal_init|rte_eal_hotplug_(add|remove)|rte_strerror|rte_thread_(un)?register'
functions+='|rte_eth_dev_(get_port_by_name|stop|close)|rte_eth_stats_get|rte_eth_promiscuous_disable'
functions+='|rte_pktmbuf_pool_create|rte_mempool_avail_count|pannier_.*'

# shellcheck disable=SC2046 # several words on purpose
{
    echo '//! Made by generate.sh from the headers of DPDK 22.11 and of the shim: do not edit.'
    bindgen shim/shim.h \
        --rust-edition 2024 --rust-target 1.85 --use-core --no-doc-comments --merge-extern-blocks \
        --disable-header-comment --allowlist-function "$functions" --no-recursive-allowlist --allowlist-type 'rte_eth_stats|pannier_(piece|frame)' \
        --raw-line 'use super::{rte_mbuf, rte_mempool};' \
        -- $(pkg-config --cflags-only-I libdpdk) -march=corei7 -include rte_config.h
} >src/bindings.rs
rustfmt --edition 2024 src/bindings.rs
