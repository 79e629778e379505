//! Finds DPDK, compiles the shim, and links both: with the feature `link` only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "link")]
    link::link();
}

#[cfg(feature = "link")]
mod link {
    /// The releases with the binary interface that the bindings were made from.
    const RELEASES: std::ops::Range<&str> = "22.11".."23.11";

    pub(crate) fn link() {
        println!("cargo::rerun-if-changed=shim");
        let Ok(dpdk) = pkg_config::Config::new().range_version(RELEASES).probe("libdpdk") else {
            println!(
                "cargo::error=pkg-config finds no DPDK 22.11: install it, on Debian 12 with `apt-get install \
                 libdpdk-dev pkg-config`, or build without the feature `dpdk`"
            );
            return;
        };
        // pkg-config's own words `-march=corei7 -include rte_config.h` do not come through the crate.
        cc::Build::new()
            .file("shim/shim.c")
            .includes(&dpdk.include_paths)
            .flag_if_supported("-march=corei7")
            .flag("-include")
            .flag("rte_config.h")
            .opt_level(3)
            .compile("pannier_dpdk_shim");
    }
}
