#!/bin/sh
# Stops the service if the package goes ("remove" of dpkg, 0 of rpm), not before an upgrade.
set -e
case "$1" in
remove | 0)
  if [ -d /run/systemd/system ]; then systemctl disable --now ratelimitd.service; fi
  ;;
esac
