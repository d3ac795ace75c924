#!/bin/sh
# An upgrade restarts a service that runs; should it not start, the package is installed all the same. The first start
# is left to who has read the settings.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart ratelimitd.service || true
fi
