# Debian packages of what is built: nlsplit-worker (nlbench and the kernels, for machines that only run) and nlsplit (nlsim, nlemulate and
# the scenarios, and all of the former). scripts/make_packages builds them; the GPU's module is left out: NVIDIA's libraries are no
# packages of Debian.
include(GNUInstallDirs)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME nlsplit)
set(CPACK_PACKAGE_CONTACT "The developers of nlsplit <nlsplit@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Splits neural networks over machines: plans, simulation, runs")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL planner worker)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The modules with the kernels lie beside no public library: nothing else shall find them.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS OFF)
set(CPACK_DEBIAN_PLANNER_PACKAGE_NAME nlsplit)
set(CPACK_DEBIAN_PLANNER_DESCRIPTION "nlsim ranks plans for splitting a network by simulation, nlemulate makes a
scenario's cluster out of one machine, and nlbench, which comes along, runs
plans and measures them.")
set(CPACK_DEBIAN_PLANNER_PACKAGE_DEPENDS "nlsplit-worker (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_WORKER_PACKAGE_NAME nlsplit-worker)
set(CPACK_DEBIAN_WORKER_DESCRIPTION "nlbench with its kernels, for machines that run what another one has planned:
as a rank of MPI, or as a worker over gRPC.")
# Several machines start ranks with mpirun; what runs over gRPC or alone needs none.
set(CPACK_DEBIAN_WORKER_PACKAGE_RECOMMENDS openmpi-bin)
include(CPack)
