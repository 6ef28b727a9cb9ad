// Metrics of the daemon in Prometheus's text format, and rates and percentiles between two reads.

/** @typedef {{ labels: Record<string, string>, value: number }} Sample */

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g;

/** All samples of one read. */
export class Metrics {
  /**
   * @param {string} text
   * @param {number} time Time of the read, in seconds since the epoch.
   */
  constructor(text, time) {
    this.time = time;
    /** @type {Map<string, Sample[]>} */
    this.families = new Map();
    for (const line of text.split("\n")) {
      const match = line.startsWith("#") ? null : SAMPLE.exec(line);
      if (!match) continue;
      const [, name, list = "", value] = match;
      const labels = Object.fromEntries([...list.matchAll(LABEL)].map(([, key, quoted]) => [key, quoted]));
      const samples = this.families.get(name) ?? [];
      samples.push({ labels, value: value === "+Inf" ? Infinity : Number(value) });
      this.families.set(name, samples);
    }
  }

  /** @returns {Promise<Metrics>} */
  static async read() {
    const response = await fetch("/metrics", { signal: AbortSignal.timeout(10_000) });
    if (!response.ok) throw new Error(`/metrics: ${response.status}`);
    return new Metrics(await response.text(), Date.now() / 1000);
  }

  /**
   * Adds up the samples of a family.
   * @param {string} name
   * @param {(labels: Record<string, string>) => boolean} [counts] Which samples count.
   */
  sum(name, counts = () => true) {
    return (this.families.get(name) ?? []).reduce((sum, { labels, value }) => (counts(labels) ? sum + value : sum), 0);
  }

  /**
   * Returns the increase per second of a counter since an earlier read.
   * @param {Metrics} earlier
   * @param {string} name
   * @param {(labels: Record<string, string>) => boolean} [counts]
   */
  rate(earlier, name, counts) {
    // The clock may have been set back.
    const seconds = Math.max(this.time - earlier.time, 0.001);
    // After a restart, counters begin again at 0.
    return Math.max(this.sum(name, counts) - earlier.sum(name, counts), 0) / seconds;
  }

  /**
   * Returns a percentile of what a histogram counted since an earlier read, interpolated within its bucket, or NaN if
   * there was nothing.
   * @param {Metrics} earlier
   * @param {string} name
   * @param {number} share 0 to 1.
   * @param {(labels: Record<string, string>) => boolean} [counts] Which samples count.
   */
  percentile(earlier, name, share, counts = () => true) {
    const buckets = this.#buckets(name, counts);
    const before = earlier.#buckets(name, counts);
    const grown = [...buckets].map(([end, count]) => /** @type {const} */ ([end, count - (before.get(end) ?? 0)]));
    grown.sort(([a], [b]) => a - b);
    const total = grown.at(-1)?.[1] ?? 0;
    if (total <= 0) return NaN;
    const rank = share * total;
    let [start, below] = [0, 0];
    for (const [end, count] of grown) {
      if (count >= rank) return end === Infinity ? start : start + ((end - start) * (rank - below)) / Math.max(count - below, 1);
      [start, below] = [end, count];
    }
    return start;
  }

  /**
   * @param {string} name
   * @param {(labels: Record<string, string>) => boolean} counts
   * @returns {Map<number, number>} Cumulative counts by the end of the bucket.
   */
  #buckets(name, counts) {
    const sums = new Map();
    for (const { labels, value } of this.families.get(`${name}_bucket`) ?? []) {
      if (!counts(labels)) continue;
      const end = labels.le === "+Inf" ? Infinity : Number(labels.le);
      sums.set(end, (sums.get(end) ?? 0) + value);
    }
    return sums;
  }
}
