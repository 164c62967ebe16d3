#!/usr/bin/env bash
# Makes Debian's builds of the named tools available, without starting a service: those that are one static binary are
# unpacked beside the checkout's sources (no package is installed for them), the rest is installed. Present tools are kept.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.tools/bin
PATH=$bin:$PATH

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else echo "tests/debian.sh: '$*' needs root, and there is no sudo" >&2; exit 1
    fi
}

updated=
update() {
    [ -n "$updated" ] || as_root apt-get update -qq
    updated=1
}

apt_install() { # packages
    update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

unpack() { # package, paths of the binaries in it; $data: a folder that they read, which goes where the package has it
    update
    local work
    work=$(mktemp -d)
    echo "Unpacking Debian's $1 into .tools"
    (cd "$work" && apt-get -o APT::Sandbox::User=root download -qq "$1" && dpkg -x "$1"_*.deb root)
    mkdir -p "$bin"
    (cd "$work/root" && install -m 755 "${@:2}" "$bin/")
    if [ -n "${data:-}" ]; then as_root mkdir -p "/$data" && as_root cp -RT "$work/root/$data" "/$data"; fi
    rm -rf "$work"
}

declare -A reads=([prometheus]=/usr/share/prometheus/web [prometheus-alertmanager]=/usr/share/prometheus/alertmanager)

present() { # a tool; what is unpacked here also needs the folder that it reads, which a kept .tools does not bring
    local path
    path=$(command -v "$1") && { [ "$path" != "$bin/$1" ] || [ -e "${reads[$1]:-/}" ]; }
}

for tool in "$@"; do
    if [ "$tool" != python3-venv ] && present "$tool"; then continue; fi
    case $tool in
        promtool) unpack prometheus usr/bin/promtool ;;
        prometheus) # its pages link to scripts and fonts of other packages
            apt_install fonts-glyphicons-halflings libjs-bootstrap4 libjs-jquery libjs-popper.js
            data=usr/share/prometheus/web unpack prometheus usr/bin/promtool usr/bin/prometheus
            ;;
        vmagent | vmalert | victoria-metrics) unpack victoria-metrics usr/bin/{vmagent,vmalert,victoria-metrics} ;;
        amtool | prometheus-alertmanager) # the server does not start without its default templates
            data=usr/share/prometheus/alertmanager unpack prometheus-alertmanager usr/bin/amtool usr/bin/prometheus-alertmanager
            ;;
        jsonnet) unpack jsonnet usr/bin/jsonnet ;;
        etcd) unpack etcd-server usr/bin/etcd ;;
        logrotate) apt_install libpopt0 && unpack logrotate usr/sbin/logrotate ;; # the package would bring cron
        svlogd) unpack runit usr/bin/svlogd ;;
        multilog) unpack daemontools usr/bin/multilog ;;
        s6-log) apt_install s6 ;;
        mtail) unpack mtail usr/bin/mtail ;;
        chromedriver) apt_install chromium chromium-driver ;;
        systemd-analyze) apt_install systemd ;;
        buildah | mmdebstrap | python3-venv | runc | umoci) apt_install "$tool" ;;
        *) echo "tests/debian.sh: no idea where $tool comes from" >&2; exit 2 ;;
    esac
done
