#!/bin/sh
# The user stays: files that it owns may be there still. A purge takes what the service had counted.
set -e
if [ "$1" = purge ]; then rm -rf /var/lib/ratelimitd; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
