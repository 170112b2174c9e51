# db_bench, for the examples that source it, also in a guest's sh. $keys is the number of keys, and a
# disk is mounted at $work/DISK.

# db DISK BENCHMARK ARGUMENT…: what db_bench prints. Reads and writes pass the page cache by.
db() {
    local disk=$1 benchmark=$2
    shift 2
    db_bench --db="$work/$disk/db" --benchmarks="$benchmark" --num="$keys" --value_size=400 \
        --cache_size=$((8 << 20)) --use_direct_reads=1 \
        --use_direct_io_for_flush_and_compaction=1 --histogram=1 "$@" 2>/dev/null
}

# numbers: requests per second, and the 99th percentile in microseconds.
numbers() {
    awk '
        / micros\/op / && !rate { for (i = 1; i <= NF; i++) if ($i == "ops/sec") rate = $(i - 1) }
        /P99: / && !p99 { for (i = 1; i <= NF; i++) if ($i == "P99:") p99 = $(i + 1) }
        END { print rate, p99 }'
}
