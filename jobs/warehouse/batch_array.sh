#!/usr/bin/env bash
# An array of AWS Batch: a child for each shard, then one job that publishes. Needs the AWS command line, a job queue and
# a job definition whose image has `overturn` and the job file, and whose retry strategy stops at exit code 1.
#
#   jobs/warehouse/batch_array.sh QUEUE DEFINITION NIGHT VERSION [SHARDS]
#
# All children need one fitted generator and one version of the table.
set -euo pipefail

queue=$1 definition=$2 night=$3 version=$4 shards=${5:-8}
arguments="/jobs/nightly.toml --format json --log json --set lake=s3://lake --set night=$night"
arguments+=" --override explain.generator=s3://lake/generator --override input.features.version=$version"
# Children are counted from 0, shards from 1.
shard="exec overturn run $arguments --shard \"\$((AWS_BATCH_JOB_ARRAY_INDEX + 1))/$shards\""

submit() { # submit NAME COMMAND ARGUMENTS...: gives the job's id
  local name=$1 command=$2; shift 2
  aws batch submit-job --job-name "$name" --job-queue "$queue" --job-definition "$definition" \
    --container-overrides "$(python3 -c 'import json, sys; print(json.dumps({"command": ["sh", "-c", sys.argv[1]]}))' "$command")" \
    --query jobId --output text "$@"
}

explained=$(submit "overturn-shards-$night" "$shard" --array-properties "size=$shards")
submit "overturn-publish-$night" "exec overturn publish $arguments" --depends-on "jobId=$explained"
