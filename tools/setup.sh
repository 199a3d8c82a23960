#!/bin/sh
# Installs what `make test` and `make demo` need on Debian 12 or 13: system packages (as root or
# through sudo, no service is started) and a virtual environment in the user's cache.
# usage: tools/setup.sh EXTRAS       prints the environment's folder on standard output
set -eu
cd "$(dirname "$0")/.."
extras=$1
packages="slurmctld slurmd slurm-client slurmdbd munge slurm-wlm-basic-plugins
 slurm-wlm-mysql-plugin mariadb-server lua-socket lua-posix lua5.1 lua-check python3 python3-venv git
 procps"
say() { echo "setup: $*" >&2; }

missing=""
for package in $packages; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' ||
    missing="$missing $package"
done
if [ -n "$missing" ]; then
  say "installing$missing"
  sudo=""
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { say "root or sudo is needed to install$missing"; exit 1; }
    sudo=sudo
  fi
  $sudo apt-get update -q >&2
  # RUNLEVEL=1 keeps the packages' services from starting
  # shellcheck disable=SC2086 -- one word a package
  $sudo env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends $missing >&2
fi

python=${PYTHON:-python3}
key=$({ echo "$PWD $extras"; "$python" -V; cat setup.cfg pyproject.toml; } | cksum | tr ' ' -)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/omnipilot/venv-$key
if [ ! -e "$venv/ready" ]; then
  say "building $venv"
  rm -rf "$venv"
  "$python" -m venv "$venv" >&2
  "$venv/bin/pip" install -q --disable-pip-version-check --root-user-action=ignore "setuptools>=66" wheel >&2
  "$venv/bin/pip" install -q --disable-pip-version-check --root-user-action=ignore --no-build-isolation -e ".[$extras]" >&2
  touch "$venv/ready"
fi
echo "$venv"
