/**
 * The types that modules share: what the server sends, and what the page holds.
 *
 * @typedef {{ name: string, frames: number, width_px: number, height_px: number, fps: number,
 *             numbers: number[] | null }} Video
 * @typedef {{ id: number, name: string }} Labelled
 * @typedef {[number | null, number | null, boolean]} Point  x, y in pixels, visible
 * @typedef {{ mask?: string, objects?: number[], pixels?: Record<string, number>,
 *             points?: Record<string, Point> }} Annotation
 * @typedef {{ key: string, video: Video, folder: string, revision: number, kind: "masks" | "parts" | "keypoints",
 *             objects: Labelled[], skeleton: [string, string][], frames: Record<string, Annotation>,
 *             pending: number[], canUndo: boolean, canRedo: boolean }} Project
 * @typedef {{ problem: string, remedy: string, kind?: string }} Problem
 * @typedef {{ verb: string, status: string, done: number, total: number, seconds: number,
 *             etaSeconds: number | null, notes: string[], error: Problem | null,
 *             result: Record<string, any> | null, number: number }} Job
 * @typedef {{ version: string, canBrowse: boolean, problem: Problem | null, colours: number[][],
 *             presets: Record<string, string>, directions: Record<string, string>, job: Job,
 *             project: Project | null, key?: string | null }} ServerState
 * @typedef {{ index: number, frame_number: number, object: string, name: string, confidence: number,
 *             reason: string, first: number, last: number }} Suggestion
 * @typedef {{ kind: string, first: number, last: number, object: string, message: string }} Finding
 * @typedef {{ confidence: (number | null)[], state: (string | null)[] }} Track
 * @typedef {{ name: string, group: "files" | "labels", title: string, about: string, suffix: string,
 *             install: string | null }} Format  install: the command for a package that is missing
 * @typedef {{ status: "none" | "running" | "finished", kind?: string, names: Record<string, string>,
 *             frames: number, corrections: number, source: string[], confidence: (number | null)[],
 *             objects: Record<string, Track>, queue: Suggestion[] | null, version: string,
 *             formats: Format[], audit: Finding[] | null, since?: number }} Run
 * @typedef {{ x0: number, y0: number, x1: number, y1: number }} Rect  x1, y1 not included
 * @typedef {{ x: number, y: number }} Position
 * @typedef {(at: Position) => Position} ToScreen  from pixels of the video to pixels of the canvas
 * @typedef {{ title: string, key: string, hint: string, kinds: string[],
 *   down?: (at: Position, event: PointerEvent) => void, move?: (at: Position, event: PointerEvent) => void,
 *   up?: (at: Position, event: PointerEvent) => void, double?: () => void, cancel?: () => void, confirm?: () => void,
 *   draw?: (context: CanvasRenderingContext2D, toScreen: ToScreen) => void }} Tool  answers the pointer
 */

export {};
