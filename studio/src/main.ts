import { mount } from "svelte";
import App from "./App.svelte";
import { studio } from "./lib/state.svelte";
import "./app.css";

studio.start();
mount(App, { target: document.getElementById("app")! });
