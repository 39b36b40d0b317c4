# An image with nlsplit's Debian packages, built from this tree, and Open MPI.
#   docker build -t nlsplit .
#   docker run --rm nlsplit nlsim rank /usr/share/nlsplit/scenarios/quickstart.yaml
#   docker run --rm -v "$PWD:/work" nlsplit nlsim rank mine.yaml            # files of this folder
#   docker run --rm nlsplit mpirun --oversubscribe -np 2 nlbench run /usr/share/nlsplit/scenarios/loopback.yaml --plan halves --check
# scripts/check_image builds the image without a registry and tries these commands.
ARG DEBIAN=12

FROM debian:${DEBIAN} AS packages
WORKDIR /nlsplit
COPY . .
RUN scripts/make_packages

FROM debian:${DEBIAN}
COPY --from=packages /nlsplit/build/packages/*.deb /packages/
RUN apt-get update \
 && apt-get install -y --no-install-recommends /packages/*.deb openmpi-bin \
 && rm -rf /packages /var/lib/apt/lists/* \
 && useradd --create-home nlsplit
# Open MPI refuses root, and looks for X displays by name unless told otherwise.
USER nlsplit
ENV HWLOC_COMPONENTS=-gl
WORKDIR /work
