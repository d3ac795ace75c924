#!/bin/sh
# The user stays, because it may still own files. A purge removes the counts.
set -e
if [ "$1" = purge ]; then rm -rf /var/lib/ratelimitd; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
