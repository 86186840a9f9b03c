#!/usr/bin/env bash
# Opens an issue about a failed scheduled run, unless one with that label is open: open_issue.sh LABEL TITLE
set -euo pipefail
label=$1 title=$2
gh label create "$label" --force --description "opened by a scheduled run"
if [ "$(gh issue list --state open --label "$label" --json number --jq length)" -eq 0 ]; then
  gh issue create --title "$title" --label "$label" \
    --body "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY/actions/runs/$GITHUB_RUN_ID"
fi
