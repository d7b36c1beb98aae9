//! Compiles the contract without a protoc binary and keeps its descriptors for reflection.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 7] = [
    "ccm/discovery/v1/discovery.proto",
    "ccm/cloudprovider/v1alpha1/cloud_provider.proto",
    "ccm/cloudprovider/v1alpha1/instances.proto",
    "ccm/cloudprovider/v1alpha1/load_balancers.proto",
    "ccm/cloudprovider/v1alpha1/routes.proto",
    "ccm/cloudprovider/v1alpha1/volumes.proto",
    "ccm/cloudprovider/v1alpha1/clusters.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=ccm");
    let descriptors = protox::compile(FILES, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // A provider serves some RPCs of a service and not others: the rest answers UNIMPLEMENTED.
        .generate_default_stubs(true)
        .compile_fds(descriptors)?;
    Ok(())
}
