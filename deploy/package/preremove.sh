#!/bin/sh
# Stops the service if the package is removed (dpkg: "remove", rpm: 0), but not before an upgrade.
set -e
case "$1" in
remove | 0)
  if [ -d /run/systemd/system ]; then systemctl disable --now ratelimitd.service; fi
  ;;
esac
