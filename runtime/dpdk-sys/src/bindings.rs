//! Made by generate.sh from the headers of DPDK 22.11 and of the shim: do not edit.
use super::{rte_mbuf, rte_mempool};

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct rte_eth_stats {
    pub ipackets: u64,
    pub opackets: u64,
    pub ibytes: u64,
    pub obytes: u64,
    pub imissed: u64,
    pub ierrors: u64,
    pub oerrors: u64,
    pub rx_nombuf: u64,
    pub q_ipackets: [u64; 16usize],
    pub q_opackets: [u64; 16usize],
    pub q_ibytes: [u64; 16usize],
    pub q_obytes: [u64; 16usize],
    pub q_errors: [u64; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of rte_eth_stats"][::core::mem::size_of::<rte_eth_stats>() - 704usize];
    ["Alignment of rte_eth_stats"][::core::mem::align_of::<rte_eth_stats>() - 8usize];
    ["Offset of field: rte_eth_stats::ipackets"][::core::mem::offset_of!(rte_eth_stats, ipackets) - 0usize];
    ["Offset of field: rte_eth_stats::opackets"][::core::mem::offset_of!(rte_eth_stats, opackets) - 8usize];
    ["Offset of field: rte_eth_stats::ibytes"][::core::mem::offset_of!(rte_eth_stats, ibytes) - 16usize];
    ["Offset of field: rte_eth_stats::obytes"][::core::mem::offset_of!(rte_eth_stats, obytes) - 24usize];
    ["Offset of field: rte_eth_stats::imissed"][::core::mem::offset_of!(rte_eth_stats, imissed) - 32usize];
    ["Offset of field: rte_eth_stats::ierrors"][::core::mem::offset_of!(rte_eth_stats, ierrors) - 40usize];
    ["Offset of field: rte_eth_stats::oerrors"][::core::mem::offset_of!(rte_eth_stats, oerrors) - 48usize];
    ["Offset of field: rte_eth_stats::rx_nombuf"]
        [::core::mem::offset_of!(rte_eth_stats, rx_nombuf) - 56usize];
    ["Offset of field: rte_eth_stats::q_ipackets"]
        [::core::mem::offset_of!(rte_eth_stats, q_ipackets) - 64usize];
    ["Offset of field: rte_eth_stats::q_opackets"]
        [::core::mem::offset_of!(rte_eth_stats, q_opackets) - 192usize];
    ["Offset of field: rte_eth_stats::q_ibytes"][::core::mem::offset_of!(rte_eth_stats, q_ibytes) - 320usize];
    ["Offset of field: rte_eth_stats::q_obytes"][::core::mem::offset_of!(rte_eth_stats, q_obytes) - 448usize];
    ["Offset of field: rte_eth_stats::q_errors"][::core::mem::offset_of!(rte_eth_stats, q_errors) - 576usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct pannier_piece {
    pub mbuf: *mut rte_mbuf,
    pub bytes: *mut u8,
    pub length: u16,
    pub before: u16,
    pub behind: u16,
    pub more: u16,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of pannier_piece"][::core::mem::size_of::<pannier_piece>() - 24usize];
    ["Alignment of pannier_piece"][::core::mem::align_of::<pannier_piece>() - 8usize];
    ["Offset of field: pannier_piece::mbuf"][::core::mem::offset_of!(pannier_piece, mbuf) - 0usize];
    ["Offset of field: pannier_piece::bytes"][::core::mem::offset_of!(pannier_piece, bytes) - 8usize];
    ["Offset of field: pannier_piece::length"][::core::mem::offset_of!(pannier_piece, length) - 16usize];
    ["Offset of field: pannier_piece::before"][::core::mem::offset_of!(pannier_piece, before) - 18usize];
    ["Offset of field: pannier_piece::behind"][::core::mem::offset_of!(pannier_piece, behind) - 20usize];
    ["Offset of field: pannier_piece::more"][::core::mem::offset_of!(pannier_piece, more) - 22usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct pannier_frame {
    pub mbuf: *mut rte_mbuf,
    pub bytes: *const u8,
    pub length: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of pannier_frame"][::core::mem::size_of::<pannier_frame>() - 24usize];
    ["Alignment of pannier_frame"][::core::mem::align_of::<pannier_frame>() - 8usize];
    ["Offset of field: pannier_frame::mbuf"][::core::mem::offset_of!(pannier_frame, mbuf) - 0usize];
    ["Offset of field: pannier_frame::bytes"][::core::mem::offset_of!(pannier_frame, bytes) - 8usize];
    ["Offset of field: pannier_frame::length"][::core::mem::offset_of!(pannier_frame, length) - 16usize];
};
unsafe extern "C" {
    pub fn rte_eal_hotplug_add(
        busname: *const ::core::ffi::c_char,
        devname: *const ::core::ffi::c_char,
        drvargs: *const ::core::ffi::c_char,
    ) -> ::core::ffi::c_int;
    pub fn rte_eal_hotplug_remove(
        busname: *const ::core::ffi::c_char,
        devname: *const ::core::ffi::c_char,
    ) -> ::core::ffi::c_int;
    pub fn rte_eal_init(argc: ::core::ffi::c_int, argv: *mut *mut ::core::ffi::c_char) -> ::core::ffi::c_int;
    pub fn rte_strerror(errnum: ::core::ffi::c_int) -> *const ::core::ffi::c_char;
    pub fn rte_thread_register() -> ::core::ffi::c_int;
    pub fn rte_thread_unregister();
    pub fn rte_mempool_avail_count(mp: *const rte_mempool) -> ::core::ffi::c_uint;
    pub fn rte_pktmbuf_pool_create(
        name: *const ::core::ffi::c_char,
        n: ::core::ffi::c_uint,
        cache_size: ::core::ffi::c_uint,
        priv_size: u16,
        data_room_size: u16,
        socket_id: ::core::ffi::c_int,
    ) -> *mut rte_mempool;
    pub fn rte_eth_dev_stop(port_id: u16) -> ::core::ffi::c_int;
    pub fn rte_eth_dev_close(port_id: u16) -> ::core::ffi::c_int;
    pub fn rte_eth_promiscuous_disable(port_id: u16) -> ::core::ffi::c_int;
    pub fn rte_eth_stats_get(port_id: u16, stats: *mut rte_eth_stats) -> ::core::ffi::c_int;
    pub fn rte_eth_dev_get_port_by_name(
        name: *const ::core::ffi::c_char,
        port_id: *mut u16,
    ) -> ::core::ffi::c_int;
    pub fn pannier_processor() -> ::core::ffi::c_int;
    pub fn pannier_errno() -> ::core::ffi::c_int;
    pub fn pannier_log_keep();
    pub fn pannier_log_first(line: *mut ::core::ffi::c_char, size: usize);
    pub fn pannier_start(
        port: u16,
        pool: *mut rte_mempool,
        descriptors: u16,
        chains: *mut bool,
    ) -> ::core::ffi::c_int;
    pub fn pannier_rx_burst(
        port: u16,
        pool: *mut rte_mempool,
        reserve: u32,
        pieces: *mut pannier_piece,
        most: u16,
    ) -> u16;
    pub fn pannier_next(piece: *mut pannier_piece);
    pub fn pannier_free(mbuf: *mut rte_mbuf);
    pub fn pannier_fill(
        pool: *mut rte_mempool,
        frames: *const pannier_frame,
        mbufs: *mut *mut rte_mbuf,
        count: u16,
    ) -> u16;
    pub fn pannier_tx_burst(port: u16, mbufs: *mut *mut rte_mbuf, count: u16) -> u16;
}
