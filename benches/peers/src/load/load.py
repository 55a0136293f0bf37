# One Python variant of `load`: prints nanoseconds, minor faults, CPU time, the time of the end and the sum of a byte per page of
# each load.
import resource

def touched(arrays):
    return sum(int(a[::4096].astype("uint64").sum()) for a in arrays) & (2**64 - 1)

for _ in range({"warm": 3, "cold": 2, "new": 1}[sys.argv[3]]):
    if cold:
        evict(path)
    faults, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter_ns()
    held = load(path)
    total = touched(flat(held))
    took, ended, after = time.perf_counter_ns() - began, time.monotonic_ns(), resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - faults.ru_utime - faults.ru_stime
    # dequantised weights are not compared with the other variants: their dtype differs
    print(took, after.ru_minflt - faults.ru_minflt, int(cpu * 1e9), ended, *[] if "one at a time" in name else [total])
    del held
