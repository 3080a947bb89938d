#!/bin/sh
# Makes sure that there is an adapter to run on. Where there is none, Debian and Ubuntu get Mesa's
# software Vulkan driver (as root or through sudo); elsewhere this says what to install.
# Usage: ensure-adapter.sh PATH-OF-WEBGPU-OPS
set -u
cli=$1

if "$cli" info --check; then
    exit 0
fi

if [ -e /etc/debian_version ] && command -v apt-get >/dev/null; then
    as_root=
    if [ "$(id -u)" != 0 ]; then
        as_root=sudo
    fi
    if [ -z "$as_root" ] || command -v sudo >/dev/null; then
        echo "installing mesa-vulkan-drivers (software Vulkan)"
        $as_root apt-get update -qq &&
            $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq mesa-vulkan-drivers >/dev/null
        if "$cli" info --check; then
            exit 0
        fi
    fi
fi

cat >&2 <<'EOF'
There is no GPU adapter. Install a driver and run this again:
  Debian, Ubuntu   sudo apt-get install mesa-vulkan-drivers
  Fedora           sudo dnf install mesa-vulkan-drivers
  Arch             sudo pacman -S vulkan-swrast
  Windows, macOS   DX12 and Metal come with the system; update the graphics driver
EOF
exit 1
