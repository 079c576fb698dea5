# timecycle as an image, with torch for the CPU or for CUDA. From this folder:
#
#   docker build -t registry.example.com/timecycle:0.1.0-cpu .
#   docker build -t registry.example.com/timecycle:0.1.0-cuda --build-arg VARIANT=cuda .
#   docker run --rm -v "$PWD:/data" registry.example.com/timecycle:0.1.0-cpu propagate dog.mp4 first.png -o out
#
# Build arguments:
#   VARIANT      cpu or cuda: which build of torch
#   TORCH_INDEX  the package index torch is taken from; by default PyTorch's own (cpu) or PyPI (cuda)
#   BASE         the image everything is installed on: Debian with Python 3.11 or newer
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS python
# wget: older versions of KubeRay ask with it whether a node is alive. Versions are not pinned: Debian keeps only the
# newest of a release, with its security fixes.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv wget \
    && rm -rf /var/lib/apt/lists/*


FROM python AS build
# For the compiled kernel. It is built for every x86-64 and for AVX2 and AVX-512, and chosen when the program starts, so
# that the machine of the build does not matter.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY constraints.txt ./

# torch by itself, as its CPU build comes from another index: what it asks for follows below, from the usual one.
ARG VARIANT=cpu
ARG TORCH_INDEX=
RUN case "$VARIANT" in \
        cpu) index=https://download.pytorch.org/whl/cpu ;; \
        cuda) index=https://pypi.org/simple ;; \
        *) echo "VARIANT is $VARIANT: use cpu or cuda" >&2; exit 1 ;; \
    esac \
    && python3 -m venv /opt/timecycle \
    && /opt/timecycle/bin/pip install --no-deps --index-url "${TORCH_INDEX:-$index}" -c constraints.txt torch

RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip install -c constraints.txt hatchling
COPY pyproject.toml hatch_build.py README.md LICENSE THIRD_PARTY_NOTICES ./
COPY src src
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist .

# ray[default] has the dashboard, through which KubeRay starts jobs.
RUN /opt/timecycle/bin/pip install -c constraints.txt \
        "timecycle[s3,bulk,hub] @ file://$(echo /build/dist/timecycle-*.whl)" "ray[default]" \
    && /opt/timecycle/bin/pip check \
    && /opt/timecycle/bin/timecycle doctor > doctor.txt \
    && cat doctor.txt \
    && grep -q "compiled kernel (" doctor.txt


FROM python AS runtime
COPY --from=build /opt/timecycle /opt/timecycle
# KubeRay starts its programs in a login shell, which sets a PATH of its own.
# hadolint ignore=SC2016
RUN echo 'PATH=/opt/timecycle/bin:$PATH' > /etc/profile.d/timecycle.sh \
    && useradd --create-home --uid 1000 timecycle \
    && install -d -o timecycle -g timecycle /data
# For NVIDIA's container runtime; without a GPU they mean nothing.
ENV PATH=/opt/timecycle/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
WORKDIR /data
ENTRYPOINT ["timecycle"]
CMD ["--help"]
