#!/bin/sh
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Keeps the one issue that says what newer upstreams break, after `make matrix VERSIONS=next` ended as OUTCOME: it has the report as its text, and is
# closed once nothing is newer. Needs gh, and in GH_TOKEN a token that may write issues.
set -eu
cd "$(dirname "$0")/../.."
title="Newer upstreams"
report=bin/matrix/next.md
number=$(gh issue list --state open --search "in:title \"$title\"" --json number --jq '.[0].number // empty')
if [ -f "$report" ]; then
  if [ -n "$number" ]; then
    gh issue edit "$number" --body-file "$report"
  else
    gh issue create --title "$title" --body-file "$report"
  fi
elif [ "$OUTCOME" = success ] && [ -n "$number" ]; then
  gh issue close "$number" --comment "Nothing is newer any more."
fi
