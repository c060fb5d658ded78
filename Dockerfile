# kaiju on Debian 12: the programs, both libraries with their headers, the Python package, the bundled model. With a GPU: cuda/Dockerfile.
#   docker build -t kaiju . && docker run -it --rm kaiju
# The server: docker run -it --rm -p 127.0.0.1:8080:8080 kaiju kaiju-server --address 0.0.0.0
FROM debian:12-slim AS build
WORKDIR /kaiju
COPY examples/packages.sh examples/
RUN . examples/packages.sh && need_packages $kaiju_packages $kaiju_server_packages file
COPY . .
RUN cmake -S . -B build/package -G Ninja -DCMAKE_BUILD_TYPE=Release -DKAIJU_BUILD_TESTS=OFF "-DXGRAMMAR_SOURCE=$(sh examples/structured/fetch.sh /xgrammar)"
RUN cmake --build build/package
RUN cd build/package && cpack -G DEB -B /packages

FROM debian:12-slim
RUN --mount=type=bind,from=build,source=/packages,target=/packages \
    apt-get update && apt-get install -y passwd /packages/kaiju_*.deb && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home kaiju
USER kaiju
WORKDIR /home/kaiju
CMD ["kaiju-chat"]
