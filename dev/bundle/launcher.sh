#!/bin/sh
# What py2app's launcher does before Python starts, for a bundle built on Linux.
here=$(cd "$(dirname "$0")" && pwd)
export EXECUTABLEPATH="$here/$(basename "$0")"
export ARGVZERO="$0"
RESOURCEPATH=$(cd "$here/../Resources" && pwd)
export RESOURCEPATH
export PYTHONHOME="$RESOURCEPATH" PYTHONPATH="$RESOURCEPATH"
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
exec "$here/python" "$RESOURCEPATH/__boot__.py" "$@"
