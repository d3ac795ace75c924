#!/bin/sh
# The user of the service. The files of /etc/ratelimitd are its group's.
set -e
getent group ratelimitd >/dev/null || groupadd --system ratelimitd
getent passwd ratelimitd >/dev/null ||
  useradd --system --gid ratelimitd --home-dir /var/lib/ratelimitd --no-create-home --shell /usr/sbin/nologin \
    --comment "ratelimitd" ratelimitd
