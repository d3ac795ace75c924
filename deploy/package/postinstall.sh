#!/bin/sh
# An upgrade restarts a running service. If that does not start, the package is installed all the same. The administrator
# starts it for the first time, after setting it up.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart ratelimitd.service || true
fi
