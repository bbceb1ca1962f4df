# docker build -t replicax .                                     for CPUs
# docker build -t replicax --build-arg EXTRAS=data,cuda12 .      for NVIDIA GPUs
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

ARG EXTRAS=data
WORKDIR /opt/replicax
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY replicax replicax
RUN pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]"

RUN useradd --create-home user
USER user
WORKDIR /home/user
ENTRYPOINT ["replicax"]
CMD ["--help"]
